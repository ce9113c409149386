package main

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
)

// printsList marks the commands that list things.
const printsList = "prints-list"

// plainItem is an item of a list that is no message of the API.
type plainItem interface {
	// itemName is what -o name prints.
	itemName() string
	// itemText is the item as JSON.
	itemText() (string, error)
}

// registerList gives a command that lists things the flags of all lists: --columns, and -o name. The columns are
// those of an empty table.
func registerList[M any](a *app, cmd *cobra.Command, table func([]M) outputTable) *cobra.Command {
	a.columnsFlag(cmd)
	if a.listColumns == nil {
		a.listColumns = map[*cobra.Command]func() []string{}
	}
	a.listColumns[cmd] = func() []string {
		var names []string
		for _, heading := range table(nil).heading {
			names = append(names, columnName(heading))
		}
		return names
	}
	return cmd
}

func annotate(cmd *cobra.Command, key string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[key] = "yes"
}

// printFetchedList returns the action of a command that prints the list that fetch returns.
func printFetchedList[M any](a *app, table func([]M) outputTable,
	fetch func(ctx context.Context, c *client.Client) ([]M, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
			items, err := fetch(ctx, c)
			if err != nil {
				return err
			}
			return printList(a, items, table)
		})
	}
}

// printList prints a list in the format of --output: a table, one JSON array, YAML documents, or names.
func printList[M any](a *app, items []M, table func([]M) outputTable) error {
	switch a.output {
	case "table":
		return a.printTable(table(items))
	case "name":
		for _, item := range items {
			if err := a.printItemName(item); err != nil {
				return err
			}
		}
		return nil
	}
	texts := make([]string, len(items))
	for i, item := range items {
		var err error
		texts[i], err = a.encodeItem(item)
		if err != nil {
			return err
		}
	}
	return a.printTexts(texts)
}

func (a *app) printItemName(item any) error {
	if plain, ok := item.(plainItem); ok {
		return a.println(printableText(plain.itemName()))
	}
	return a.printNames(item.(proto.Message))
}

func (a *app) encodeItem(item any) (string, error) {
	if plain, ok := item.(plainItem); ok {
		return plain.itemText()
	}
	return a.encodeShown(item.(proto.Message))
}
