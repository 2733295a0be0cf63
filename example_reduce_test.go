package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// Reduce combines the records of a key into one of the same type.
func ExampleKeyed_Reduce() {
	type Reading struct {
		Sensor  string
		Celsius int
	}
	job := weir.NewJob("warmest")
	job.From("readings", weir.Slice(Reading{"roof", 18}, Reading{"roof", 24}, Reading{"roof", 21})).
		KeyBy(func(r Reading) string { return r.Sensor }).
		Reduce("warmest", func(a, b Reading) Reading {
			if b.Celsius > a.Celsius {
				return b
			}
			return a
		}).
		To("out", weir.Stdout[Reading]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {Sensor:roof Celsius:18}
	// {Sensor:roof Celsius:24}
	// {Sensor:roof Celsius:24}
}
