"""Files as text: whatever is uploaded is read in a process of its own, with limits, and can't hurt the server.

`reader.FileReader` is the way in. `child` is what it starts; `pdf`, `webpage` and `word` run only there, and this
package imports nothing by itself, so that the child pays for what its kind of file needs and no more.
"""
