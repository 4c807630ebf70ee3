DROP TABLE budget_warnings;
DROP TABLE usage_budgets;
DROP TABLE model_usage;
