package weir_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/window"
)

// A whole job: clicks per ad and minute, from a file of JSON lines. A click
// that was sent twice counts once.
func Example() {
	type Click struct {
		ID string    `json:"id"`
		Ad string    `json:"ad"`
		At time.Time `json:"at"`
	}
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "clicks.jsonl")
	lines := `{"id":"1","ad":"ad-42","at":"2026-03-01T12:00:10Z"}
{"id":"2","ad":"ad-42","at":"2026-03-01T12:00:40Z"}
{"id":"2","ad":"ad-42","at":"2026-03-01T12:00:40Z"}
{"id":"3","ad":"ad-42","at":"2026-03-01T12:01:05Z"}
`
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	job := weir.NewJob("ad-clicks")
	job.From("clicks", file.Lines(path, codec.JSON[Click]()),
		weir.EventTime(func(c Click) time.Time { return c.At }, 30*time.Second)).
		KeyBy(func(c Click) string { return c.ID }).
		Distinct("seen", 10*time.Minute).
		KeyBy(func(c Click) string { return c.Ad }).
		Window(window.Tumbling(time.Minute)).
		Count("clicks-per-minute").
		Map(func(r weir.Result[string, int64]) string {
			return fmt.Sprintf("%s %s %d", r.Key, r.Start.Format("15:04"), r.Value)
		}).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background(), weir.StateDir(filepath.Join(dir, "state"))); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ad-42 12:00 2
	// ad-42 12:01 1
}
