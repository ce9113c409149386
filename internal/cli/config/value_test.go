package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestValuesOfAnotherType: the error says what the flag takes, wherever the value comes from.
func TestValuesOfAnotherType(t *testing.T) {
	for arg, want := range map[string]string{
		"op-timeout=300": `"300" for "--op-timeout" flag: want a duration such as 250ms, 30s, 1h30m, 7d or 2w; ` +
			"the unit is missing: 300s for seconds",
		"op-timeout=1.5":             "the unit is missing: 1.5s for seconds",
		"op-timeout=5 minutes":       "want a duration such as 250ms, 30s, 1h30m, 7d or 2w",
		"op-timeout=9999999h":        "is longer than 292 years",
		"slots=many":                 `"many" for "--slots" flag: want a whole number`,
		"slots=1.5":                  "want a whole number",
		"slots=99999999999999999999": "want a whole number; this one is out of range",
		"tls=maybe":                  `"maybe" for "--tls" flag: want true or false`,
		"ratio=half":                 "want a number such as 2 or 0.5",
		"shards=-1":                  "want a whole number that is not negative",
	} {
		name, value, _ := strings.Cut(arg, "=")
		check := func(from string, err error) {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") ||
				strings.Contains(err.Error(), "time:") {
				t.Errorf("%s by %s: %v, want %s", arg, from, err, want)
			}
		}
		flags := func() *pflag.FlagSet {
			f := newSettings(t).cmd.Flags()
			f.Float64("ratio", 1, "")
			f.Uint16("shards", 1, "")
			return f
		}
		check("argument", ExplainValue(flags().Parse([]string{"--" + arg})))
		f := flags()
		if err := f.Set("config", writeFile(t, name+": "+value)); err != nil {
			t.Fatal(err)
		}
		check("file", LoadFlags(f, "FT"))
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvName("FT", name), value)
			check("environment", LoadFlags(flags(), "FT"))
		})
	}
	other := errors.New("no flag")
	if err := ExplainValue(other); err != other {
		t.Errorf("another error became %v", err)
	}
}
