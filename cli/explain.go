package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir"
)

func (a *app) explainCommand() *cobra.Command {
	return a.view("explain", "say what each sink's readers will see, and under which conditions",
		func(c *cobra.Command, job *weir.Job, _ *engine, opts []weir.RunOption) error {
			e, err := job.Explain(c.Context(), opts...)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.stdout, e)
			return err
		})
}
