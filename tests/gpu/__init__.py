"""What needs a GPU to be run: archives are built anywhere, and checked where the device is."""
