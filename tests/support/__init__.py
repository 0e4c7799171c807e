"""What several tests share: small worlds to run whet in, wire data, and drivers for its programs."""
