package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/agg"
	"github.com/weirstream/weir/window"
)

// visit is the record of the examples of windows.
type visit struct {
	Page  string
	At    time.Time
	Bytes int64
}

// visits has one that comes four minutes late.
func visits() weir.Source[visit] {
	at := func(minute, second int) time.Time { return time.Date(2026, 3, 1, 12, minute, second, 0, time.UTC) }
	return weir.Slice(visit{"/", at(0, 10), 100}, visit{"/", at(0, 20), 300}, visit{"/", at(1, 0), 500}, visit{"/", at(5, 0), 100}, visit{"/", at(0, 30), 200})
}

func visitTime(v visit) time.Time { return v.At }

func visitPage(v visit) string { return v.Page }

func show[V any](r weir.Result[string, V]) string {
	return fmt.Sprint(r.Key, " ", r.Start.Format("15:04"), " ", r.Value)
}

// Each window gives one result, when event time has passed its end. A record
// that comes later than that is dropped and counted.
func ExampleKeyed_Window() {
	job := weir.NewJob("visits")
	job.From("visits", visits(), weir.EventTime(visitTime, 0)).
		KeyBy(visitPage).
		Window(window.Tumbling(time.Minute)).
		Count("per-minute").
		Map(show[int64]).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// / 12:00 2
	// / 12:01 1
	// / 12:05 1
}

// Each record gives a new result at once: a receiver that overwrites by key and
// window is up to date. A lateness keeps windows open for longer.
func ExampleKeyed_Window_eachRecord() {
	job := weir.NewJob("visits")
	job.From("visits", visits(), weir.EventTime(visitTime, 0)).
		KeyBy(visitPage).
		Window(window.Tumbling(time.Minute, window.EachRecord, window.Lateness(10*time.Minute))).
		Count("per-minute").
		Map(show[int64]).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// / 12:00 1
	// / 12:00 2
	// / 12:01 1
	// / 12:05 1
	// / 12:00 3
}

// Each barrier emits the windows that changed since the one before, here at
// every third record: as many results as a transaction should write.
func ExampleKeyed_Window_eachBarrier() {
	job := weir.NewJob("visits")
	job.From("visits", visits(), weir.EventTime(visitTime, 0)).
		KeyBy(visitPage).
		Window(window.Tumbling(time.Minute, window.EachBarrier, window.Lateness(10*time.Minute))).
		Count("per-minute").
		Map(show[int64]).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background(), weir.EveryRecords(3)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// / 12:00 2
	// / 12:01 1
	// / 12:00 3
	// / 12:05 1
}

// Late gives the records that came too late for their window.
func ExampleWindowed_Late() {
	job := weir.NewJob("visits")
	minutes := job.From("visits", visits(), weir.EventTime(visitTime, 0)).
		KeyBy(visitPage).
		Window(window.Tumbling(time.Minute, window.Lateness(2*time.Minute)))
	minutes.Count("per-minute").Map(show[int64]).To("out", weir.Stdout[string]())
	minutes.Late().Map(func(v visit) string { return "late: " + v.At.Format("15:04:05") }).To("late", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// / 12:00 2
	// / 12:01 1
	// / 12:05 1
	// late: 12:00:30
}

// Aggregate computes what package agg has, or agg.Of makes.
func ExampleWindowed_Aggregate() {
	job := weir.NewJob("visits")
	job.From("visits", visits(), weir.EventTime(visitTime, 0)).
		KeyBy(visitPage).
		Window(window.Tumbling(time.Minute, window.Lateness(time.Hour))).
		Aggregate("mean-bytes", agg.Mean(func(v visit) int64 { return v.Bytes })).
		Map(show[float64]).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// / 12:00 200
	// / 12:01 500
	// / 12:05 100
}
