"""What the system talks about: plain values that import nothing of ours."""
