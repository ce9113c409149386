package job

import "github.com/fermata-io/fermata/internal/core/unixtime"

// DueRead is a read of a page of the due index.
type DueRead struct {
	Shard int
	Lane  Lane
	// DueMS and Ties are the place of the page: a due time, and how many records with it were read already. Zero is the
	// first page.
	DueMS unixtime.Milli
	Ties  int
}

// DuePage is a page of due times of a lane.
type DuePage struct {
	DueMS []unixtime.Milli // in order
	// Next is the read of the next page, if there are More.
	Next DueRead
	More bool
}
