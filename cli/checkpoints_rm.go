package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/control/store"
)

func (a *app) removeCommand() *cobra.Command {
	c := &cobra.Command{Use: "rm N...", Short: "remove checkpoints that no sink's ledger can name, while the job is stopped"}
	return a.looks(c, []string{"N..."}, func(ctx context.Context, job, dir string, args []string) error {
		var ns []int64
		for _, arg := range args {
			n, err := slotNumber(arg)
			if err != nil {
				return err
			}
			ns = append(ns, n)
		}
		r, err := store.Remove(ctx, dir, job, ns)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "removed %s, and %d files with %s\n", slots(r.Slots), r.Files, size(r.Bytes))
		return err
	})
}
