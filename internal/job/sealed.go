package job

// SealOverhead is how many bytes sealing adds to a payload.
const SealOverhead = 29

// PayloadSize is the size of the payload as it was given, sealed or not.
func (d *Definition) PayloadSize() int {
	if d.PayloadKey == "" {
		return len(d.Payload)
	}
	return max(0, len(d.Payload)-SealOverhead)
}
