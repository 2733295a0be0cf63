package weir

import "github.com/weirstream/weir/internal/control/epoch"

// ChainLimits makes small states be merged in the background.
func ChainLimits(l epoch.Limits) RunOption { return runOption(func(c *runConfig) { c.limits = l }) }
