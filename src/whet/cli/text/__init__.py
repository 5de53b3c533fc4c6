"""What commands say of what they found."""
