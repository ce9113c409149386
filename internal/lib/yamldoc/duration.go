package yamldoc

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// Duration is a duration in a document, such as 30s, 1h30m, 7d or 2w.
type Duration time.Duration

// UnmarshalYAML parses a scalar with [timespan.Parse].
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: want a duration such as 30s or 7d, got %s", n.Line,
			kindOfTag(n.Tag))}}
	}
	parsed, err := timespan.Parse(n.Value)
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: want a duration such as 30s or 7d, got `%.40s`",
			n.Line, n.Value)}}
	}
	*d = Duration(parsed)
	return nil
}
