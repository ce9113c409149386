package logs

import (
	"fmt"
	"log/slog"
	"strings"
)

// maxAttr is how many bytes an attribute has in a line. An audit record fits.
const maxAttr = 16 << 10

// cutAttr cuts an attribute that is too long, and says how long it is: it may come from a peer or a caller.
func cutAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); len(text) > maxAttr {
			a.Value = slog.StringValue(cutText(text))
		}
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			if text := v.Error(); len(text) > maxAttr {
				a.Value = slog.StringValue(cutText(text))
			}
		case []string:
			a.Value = slog.AnyValue(cutList(v))
		}
	}
	return a
}

func cutText(text string) string {
	return fmt.Sprintf("%s ... (%d bytes)", strings.ToValidUTF8(text[:maxAttr], ""), len(text))
}

func cutList(list []string) []string {
	bytes := 0
	for i, text := range list {
		bytes += len(text)
		if bytes > maxAttr {
			return append(list[:i:i], fmt.Sprintf("+%d more", len(list)-i))
		}
	}
	return list
}
