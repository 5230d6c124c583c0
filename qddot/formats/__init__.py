"""Readers: text into Builder calls, one file a format, no mathematics."""
