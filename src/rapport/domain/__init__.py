"""Plain values of the system. They import nothing else of Rapport."""
