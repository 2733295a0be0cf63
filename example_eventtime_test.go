package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// Event time says when a record happened. Records of a split may be out of
// order by the given disorder: here both of 12:00 are in time, although one of
// 12:01 was read between them.
func ExampleEventTime() {
	type Trade struct {
		Symbol string
		At     time.Time
	}
	at := func(clock string) time.Time {
		t, err := time.Parse(time.RFC3339, "2026-03-01T"+clock+"Z")
		if err != nil {
			panic(err)
		}
		return t
	}
	job := weir.NewJob("trades")
	job.From("trades", weir.Slice(Trade{"X", at("12:00:50")}, Trade{"X", at("12:01:10")}, Trade{"X", at("12:00:55")}),
		weir.EventTime(func(t Trade) time.Time { return t.At }, 20*time.Second)).
		KeyBy(func(t Trade) string { return t.Symbol }).
		Window(window.Tumbling(time.Minute)).
		Count("per-minute").
		Map(func(r weir.Result[string, int64]) string { return fmt.Sprint(r.Start.Format("15:04"), " ", r.Value) }).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 12:00 2
	// 12:01 1
}
