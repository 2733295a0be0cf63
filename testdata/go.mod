// The test data is a module of its own, so that a program that uses the
// library doesn't download it. There is no Go code here.
module github.com/weirstream/weir/testdata

go 1.27
