"""What a robot is: checked, frozen data."""
