"""The algorithms of the papers, one paper a file, on one state, readable beside their source."""
