"""
From a comparison to a table and a figure of a paper
====================================================

Records in, LaTeX out: the table that a paper needs, with the baseline that was given the same time,
and gaps to the best bound that anybody proved.
"""

# %%
import matplotlib.pyplot as plt

import inference_lab as il

comparison = il.compare(
    [f"potts-grid(height=16, width=16, frustration={f})" for f in (0.0, 0.2, 0.4)],
    ["icm", "loopy-bp(damping=0.5)", "trw-s", "subgraph-search"],
    time_limit=1.0,
)
print(comparison)

# %%
# ``frame`` has a row a run; what pandas can do with it is up to the paper.

table = comparison.frame.pivot_table(index="solver", columns="problem", values="gap_percent")
table.columns = [name.partition("frustration=")[2].rstrip(")") or "0" for name in table.columns]
print(table.round(2).to_latex(float_format="%.2f"))

# %%
axes = table.T.plot(marker="o", figsize=(6.5, 3.2))
axes.set(xlabel="frustration", ylabel="gap to the best bound, %")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
axes.figure.set_layout_engine("constrained")
plt.show()
