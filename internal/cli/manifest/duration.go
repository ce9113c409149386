package manifest

import (
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// longDuration turns "5m" into "300s".
func longDuration(text string) (string, error) {
	d, err := timespan.Parse(text)
	if err != nil {
		return "", err
	}
	long, err := protojson.Marshal(durationpb.New(d))
	return strings.Trim(string(long), `"`), err
}
