// Package walkthrough follows the guides of the documentation as a newcomer would: in an empty
// folder, block by block, against a real PostgreSQL. It is a separate module, since some guides
// use pgx and River.
//
// A guide is its fenced blocks, in order. A comment above a block says what to do with it:
//
//	<!-- file: NAME -->       write it to that file
//	<!-- terminal: NAME -->   run it in its own terminal, until the guide ends
//	<!-- prints: NAME -->     wait until that terminal has shown these lines
//
// Without one, a block of sh is run, and a block of text behind it is what it has printed, where
// … stands for anything. All other blocks are only read.
package walkthrough
