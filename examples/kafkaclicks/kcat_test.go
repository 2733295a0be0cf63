package main

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/kafkalab"
	"github.com/weirstream/weir/internal/process"
)

// TestKcat has a client that shares nothing with the job's write the input and read
// the counts.
func TestKcat(t *testing.T) {
	kafkalab.NeedKcat(t)
	at := newPlace(t, 4)
	var in bytes.Buffer
	for _, r := range at.file() {
		in.WriteString(string(r.Key) + "\t" + string(r.Value) + "\n")
	}
	kcat := func(stdin *bytes.Buffer, args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), process.Deadline)
		defer cancel()
		c := exec.CommandContext(ctx, "kcat", append([]string{"-b", at.list(), "-q"}, args...)...)
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if stdin != nil {
			c.Stdin = stdin
		}
		if err := c.Run(); err != nil {
			t.Fatalf("kcat %v: %v\n%s", args, err, &errs)
		}
		return out.String()
	}
	kcat(&in, "-P", "-t", at.input, "-K", "\t")
	launch(t, at.args("--bounded", "--dedup", "1h", "--checkpoint-interval", "50ms")...).Ends(0, "finished: 10,000 records")
	got := counts{}
	out := kcat(nil, "-C", "-t", at.output, "-o", "beginning", "-e", "-X", "isolation.level=read_committed", "-f", "%k\t%s\n")
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		_, n := parsed(t, &kgo.Record{Topic: at.output, Key: []byte(key), Value: []byte(value)})
		if n <= got[key] {
			t.Fatalf("%s is %d, and was %d before", key, n, got[key])
		}
		got[key] = n
	}
	same(t, "topic", got, expected(t, "clicks_ad_minute_dedup"))
}
