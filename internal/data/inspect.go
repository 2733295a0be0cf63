package data

import (
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

// Tables finds the tables in a step's sections, oldest first, by their tags,
// without a run: a window's start in nanoseconds, or a table's number in its step.
func Tables(sections []StoredSection) (map[int64][]*table.Stored, error) {
	return (&Chain{Sections: sections}).tables()
}

// The tables of a Distinct, by their tags.
const (
	NewestTimes = 0 // the newest event time of each key
	OlderTimes  = 1 // of keys that passed more than once
)

// ValueOf is the schema of the values under a tag of a step, whose section says
// value of it.
func ValueOf(op plan.Op, tag int64, value string) string {
	if op == plan.Distinct && tag == OlderTimes {
		return "[]int64"
	}
	return value
}
