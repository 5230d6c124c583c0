"""How states arrive: who calls the code, and with what."""
