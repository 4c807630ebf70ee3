"""Answer what a group is weighing: the question on the table, who stands where, what the notes say, what follows, what is open."""
