"""Mesh files for the tests."""


def write_stl(path, mesh):
    """Text, as the format's first document has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ["solid part"]
    for face in mesh.vertices[mesh.faces]:
        corners = "\n".join("vertex " + " ".join(map(str, v)) for v in face)
        rows.append(f"facet normal 0 0 0\nouter loop\n{corners}\nendloop\nendfacet")
    path.write_text("\n".join([*rows, "endsolid part"]))
