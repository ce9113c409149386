package logs

import (
	"io"
	"log"
)

// DiscardStandard discards what is written to the standard logger of package log. Each command calls it first in main,
// and logs with a logger of its own. The HTTP client of the standard library writes there when a server sends an answer
// that nobody asked for, and quotes it. Such a text may have a secret that the server has received, may be of any kind,
// and knows neither level nor format of the log.
func DiscardStandard() { log.SetOutput(io.Discard) }
