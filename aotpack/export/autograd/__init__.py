"""Forward and backward as two programs: a call with its gradients is traced as one graph, which is then cut."""
