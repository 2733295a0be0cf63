package log

import "strings"

// Unnamed returns those of the segments and output logs that an incarnation wrote
// and that no checkpoint in the log names. The incarnation itself may delete them,
// without an entry, once it is over and the log has been read since: only it could
// have entered a checkpoint that names them.
func Unnamed(entries []Entry, incarnation int64, nonce string, files []string) []string {
	named := map[string]bool{}
	for _, e := range entries {
		if e.Checkpoint != nil {
			e.Checkpoint.segments(named)
			e.Checkpoint.outputs(named)
		}
	}
	last := "-" + nonce
	var out []string
	for _, f := range files {
		if n, ok := blobIncarnation(f); ok && n == incarnation && strings.HasSuffix(f, last) && !named[f] {
			out = append(out, f)
		}
	}
	return out
}
