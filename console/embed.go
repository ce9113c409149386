// Package console has the web console as files: a page, its script and its styles. `make console` builds them from
// console/src; package gateway serves them.
package console

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files are the files of the console by their names below the path of the page. The page is index.html.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is valid
	}
	return files
}
