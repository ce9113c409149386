package guard

import "time"

// Limits of a stream that stays open.
const (
	// StreamAge is the age at which a server ends a stream, or asks the client to open a new one: possibly at
	// another node, so that streams spread over new nodes, and with the credential that the client has by then.
	// It is less than the maximum age of a connection.
	StreamAge = 24 * time.Minute
	// RecheckInterval is the interval at which the caller of a stream is authenticated and authorized again.
	RecheckInterval = 10 * time.Second
	// StuckTimeout is how long a client may leave a message of a stream unread.
	StuckTimeout = 30 * time.Second
)
