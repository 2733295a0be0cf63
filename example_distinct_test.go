package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirstream/weir"
)

// Distinct passes an id once within its time-to-live of event time. Admit says
// how late a record may be, where no window behind it does.
func ExampleKeyed_Distinct() {
	type Order struct {
		ID string
		At time.Time
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	job := weir.NewJob("orders")
	orders := job.From("orders", weir.Slice(Order{"a", noon}, Order{"a", noon.Add(time.Minute)}, Order{"a", noon.Add(time.Hour)}),
		weir.EventTime(func(o Order) time.Time { return o.At }, 0)).
		KeyBy(func(o Order) string { return o.ID }).
		Distinct("seen", time.Hour, weir.Admit(5*time.Minute))
	line := func(how string) func(Order) string {
		return func(o Order) string { return fmt.Sprint(how, " ", o.ID, " ", o.At.Format("15:04")) }
	}
	orders.Map(line("new")).
		Union(orders.Repeats().Map(line("again"))).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// new a 12:00
	// again a 12:01
	// new a 13:00
}
