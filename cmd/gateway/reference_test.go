package main

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/test/refdoc"
)

const referenceIntro = `# gateway: all settings

Generated from the command; ` + "`" + `gateway --help` + "`" + ` prints the same. Each flag can also be set by its
environment variable, or in a YAML file named by ` + "`" + `--config` + "`" + `, whose keys are the names of the flags
without dashes in front. The order of precedence is flag, environment, file, default.

`

func TestReferenceIsCurrent(t *testing.T) {
	envNames := func(f *pflag.Flag) []string { return config.EnvNames("FERMATA", f) }
	refdoc.CheckPage(t, "gateway.md", refdoc.RenderSettings(referenceIntro, envNames, rootCommand()))
}
