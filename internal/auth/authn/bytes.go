package authn

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// byteCount is a number of bytes, written without a unit or with one: 64MiB.
type byteCount int

// byteUnits are the units of byteCount. They are powers of two. Others are refused, because 64MB is ambiguous.
var byteUnits = map[string]int{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

// UnmarshalYAML reads a byteCount.
func (b *byteCount) UnmarshalYAML(node *yaml.Node) error {
	number := strings.TrimRight(node.Value, "KMGTiB")
	unit, ok := byteUnits[node.Value[len(number):]]
	n, err := strconv.Atoi(number)
	if node.Kind != yaml.ScalarNode || !ok || err != nil || n > math.MaxInt/unit || n < 0 {
		return fmt.Errorf("line %d: %q is no number of bytes: want one from 0 on, which KiB, MiB, GiB or TiB may "+
			"follow", node.Line, node.Value)
	}
	*b = byteCount(n * unit)
	return nil
}
