package main

import (
	"testing"

	"github.com/fermata-io/fermata/internal/test/refdoc"
)

const referenceIntro = `# fermata: all commands

Generated from the commands; ` + "`fermata COMMAND --help`" + ` prints the same. Tasks with examples are in [how-to](../how-to/README.md).

Exit codes, output formats and the way to a cluster are the same for all commands: ` + "`fermata --help`" + `.

`

func TestReferenceIsCurrent(t *testing.T) {
	refdoc.CheckPage(t, "cli.md", refdoc.RenderCommands(referenceIntro, (&app{}).rootCommand()))
}
