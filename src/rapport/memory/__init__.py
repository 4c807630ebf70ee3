"""Remember facts about people: extract, store and recall them (MEM)."""
