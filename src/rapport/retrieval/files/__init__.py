"""Read files as text, each in a process of its own with limits, so that no file can harm the server.

`reader.FileReader` is the entry point and `registry` lists the formats. `child` is the process it starts; the parsers
(`pdf`, `webpage`, `word`) run only there. This package imports nothing by itself: the child loads one parser only.
"""
