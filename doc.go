// Package weir is a stream processor: keyed state, event time and exactly-once
// effects in one Go binary.
//
// A job is declared by calling methods on handles, from top to bottom, and then
// run. A handle carries no data and a declaration starts nothing:
//
//	job := weir.NewJob("ad-clicks")
//	job.From("clicks", file.Lines("clicks.jsonl", codec.JSON[Click]()),
//		weir.EventTime(func(c Click) time.Time { return c.At }, 30*time.Second)).
//		KeyBy(func(c Click) string { return c.Ad }).
//		Window(window.Tumbling(time.Minute)).
//		Count("clicks-per-minute").
//		Map(func(r weir.Result[string, int64]) Row { return Row{r.Key, r.Start, r.Value} }).
//		To("counts", sqlite.Upsert[Row]("clicks.db", "ad_minute", "ad", "minute"))
//	err := job.Run(ctx, weir.StateDir("state"))
//
// # State and its position
//
// While a job runs it takes checkpoints: its state is saved together with the
// input position that it was read from. After a crash the state is restored and
// the input read again from there. What was already sent out since then is sent
// again, and so an output counts only if it is safe to repeat or commits with
// the checkpoint. [Job.Explain] says which of the two holds for each sink.
//
// # User functions
//
// Functions given to Map, Filter, KeyBy and the like are pure: the same input
// gives the same result, nothing outside is changed, records aren't modified.
// They are called from several goroutines, each for records of its own. One
// that can fail goes into a Try form. A panic stops the job and names the step
// and the input record; with [Job.DeadLetters] the record is set aside instead.
package weir
