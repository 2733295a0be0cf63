// Package kafka reads topics and writes them: exactly once between topics of one
// cluster, because what an epoch wrote, the offsets that it read and the
// checkpoint's id are one transaction there.
package kafka
