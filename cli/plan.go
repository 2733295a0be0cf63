package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir"
)

// errVerdict is a verdict that doesn't hold: what was printed says why.
var errVerdict = errors.New("the verdict doesn't hold")

func (a *app) planCommand() *cobra.Command {
	var format string
	var detailed bool
	c := &cobra.Command{Use: "plan", Short: "show the job's graph, and what becomes of each step, source and sink of the newest checkpoint", Args: noArgs}
	c.Long = c.Short + ".\n\nIt takes no lock, changes nothing, and works while the job runs. Parameters of the job may be missing: what depends on them isn't compared.\n" +
		"It exits with 0, and with 11 where a run would be refused. With --detailed-exit-code it exits with 1 where something is different and nothing refused."
	c.Flags().StringVar(&format, "format", "text", "text, dot (Graphviz), svg or json [WEIR_FORMAT]")
	c.Flags().BoolVar(&detailed, "detailed-exit-code", false, "exit with 1 where something is different, and nothing refused [WEIR_DETAILED_EXIT_CODE]")
	e := &engine{}
	e.flags(c.Flags())
	return a.bind(c, e, true, func(c *cobra.Command, job *weir.Job, _ *engine, opts []weir.RunOption) error {
		p, err := job.Plan(c.Context(), opts...)
		if err != nil {
			return err
		}
		if err := a.printPlan(p, format); err != nil {
			return err
		}
		switch {
		case p.Err() != nil:
			return p.Err()
		case detailed && p.Changed():
			return errVerdict
		}
		return nil
	})
}

func (a *app) printPlan(p *weir.Plan, format string) error {
	var out string
	switch format {
	case "text":
		out = p.String()
	case "dot":
		out = p.DOT()
	case "svg":
		out = p.SVG()
	case "json":
		b, err := p.JSON()
		if err != nil {
			return err
		}
		out = string(b)
	default:
		return usageError{fmt.Errorf("--format %q: it must be text, dot, svg or json", format)}
	}
	_, err := fmt.Fprint(a.stdout, out)
	return err
}
