package main

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/kafka"
)

// testClicks are in a module of their own, which this one can't embed.
const testClicks = "testdata/clicks-10k.jsonl"

// produceCommand fills the input topic for a first try. It is a job of its own, from
// a file to Kafka, without checkpoints: run twice, it writes every click twice.
func produceCommand() *cobra.Command {
	c := &cobra.Command{Use: "produce", Short: "write the clicks of a file to the input topic, for a first try", Args: cobra.NoArgs}
	f := verbFlags{c.Flags()}
	kafka.Connect(f) // for the flags' sake
	path := f.set.String("file", testClicks, "clicks as JSON lines; those of the test data are found from the project's root")
	topic := f.set.String("input", "clicks", "the topic that run takes for --input")
	partitions := f.set.Int("partitions", 4, "partitions of the topic, if it is missing and so is made")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !f.set.Changed("file") {
			if _, err := os.Stat(testClicks); err != nil {
				return fmt.Errorf("%w: run it in the root of the project, or name a file of clicks with --file", err)
			}
		}
		sink := kafka.Sink(kafka.Connect(f), *topic, encodeLine, kafka.AtLeastOnce(), kafka.CreateTopics(*partitions, 0))
		job := weir.NewJob("kafka-clicks-produce")
		job.From("lines", file.Lines(*path, codec.Bytes())).To("topic", sink)
		running := job.Start(c.Context(), weir.OnWait(func(what string) { fmt.Fprintln(c.ErrOrStderr(), "waiting:", what) }))
		if err := running.Wait(); err != nil {
			return err
		}
		if c.Context().Err() != nil {
			return errors.New("stopped before the end of the file")
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "%d clicks written to topic %s\n", running.Progress().Records, *topic)
		return err
	}
	return c
}

// encodeLine makes the message of a line. Its key is the click's id, so that all
// that may be said twice of one click is in one partition.
func encodeLine(line *[]byte, m *kafka.Message) error {
	var click struct {
		ID string `json:"click_id"`
	}
	if err := json.Unmarshal(*line, &click); err != nil {
		return err
	}
	m.Key = append(m.Key, click.ID...)
	m.Value = append(m.Value, *line...)
	return nil
}

// verbFlags are the parameters of a verb: declared by the first call, before the
// command line is read, and given by a later one.
type verbFlags struct{ set *pflag.FlagSet }

// Need implements kafka.Params.
func (f verbFlags) Need(name, help string) string { return f.String(name, "", help) }

// String implements kafka.Params.
func (f verbFlags) String(name, fallback, help string) string {
	if given := f.set.Lookup(name); given != nil {
		return given.Value.String()
	}
	return *f.set.String(name, fallback, help)
}

// Choice implements kafka.Params. Who uses the value says so if it is none of these.
func (f verbFlags) Choice(name, fallback string, values []string, help string) string {
	return f.String(name, fallback, help+": "+strings.Join(values, ", "))
}

// Bool implements kafka.Params.
func (f verbFlags) Bool(name string, fallback bool, help string) bool {
	if given := f.set.Lookup(name); given != nil {
		return given.Value.String() == "true"
	}
	return *f.set.Bool(name, fallback, help)
}
