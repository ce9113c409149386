package conn

import (
	"fmt"
	"strings"
)

// Durability is what an acknowledged write survives.
type Durability uint8

// Durability classes, weakest first.
const (
	// DurabilityMemory promises nothing over a restart of Redis.
	DurabilityMemory Durability = iota
	// DurabilityLocal: Redis keeps an append-only file, so that acknowledged
	// writes survive a restart of Redis, but for the last second when its host
	// crashes (appendfsync everysec).
	DurabilityLocal
	// DurabilityReplica: besides, every write is confirmed by replicas before it
	// is acknowledged, so that it survives the loss of one server. The server has
	// to refuse writes itself when it is cut off (min-replicas-to-write).
	DurabilityReplica
)

var durabilityNames = [...]string{"memory", "local", "replica"}

func (d Durability) String() string {
	if int(d) < len(durabilityNames) {
		return durabilityNames[d]
	}
	return "unknown"
}

// ParseDurability finds a class by its name.
func ParseDurability(name string) (Durability, error) {
	for i, n := range durabilityNames {
		if strings.EqualFold(n, name) {
			return Durability(i), nil
		}
	}
	return 0, fmt.Errorf("durability %q: want one of %s", name, strings.Join(durabilityNames[:], ", "))
}
