/* One job with two sinks that can both decide: may the decider change from start to start?
 *
 * INCS incarnations start in any order and overlap in any way, and each chooses which sink decides its epochs; the
 * other follows. All but the last may crash at any step. There are N input records, each with one effect at each sink. A
 * state is the prefix of the input that it covers. One epoch is open. A commit is a request in flight: the server may
 * apply it after its sender is gone.
 *
 * Without a flag the model must hold. A flag takes one rule away, and spin must then find out.
 */
#ifndef N
#define N 2
#endif
#ifndef INCS
#define INCS 3
#endif
#define CHECKPOINTS (N*INCS+1)

/* The log. Checkpoint 0 is genesis: empty state, decided by sink 0, committed at both. */
byte first[CHECKPOINTS], end_[CHECKPOINTS];     /* its epoch holds the records first .. end_-1 */
byte parent[CHECKPOINTS], decider[CHECKPOINTS]; /* the checkpoint before it; what its start names as the decider */
byte next = 1;                                  /* the number that the next checkpoint gets: next-1 is the newest */
byte started;                                   /* the newest start: older incarnations can enter nothing any more */

/* The sinks: who may write, the checkpoint in the ledger, and what a reader sees of each record. */
byte fence[2], ledger[2];
typedef Sink { byte seen[N] }
Sink sink[2];

/* Commits in flight, one an incarnation and a sink (0: none), and their answers. */
#define DONE    1
#define REFUSED 2
typedef Calls { byte sent[2]; byte answer[2] }
Calls call[INCS+1];

byte ended;        /* incarnations that are over */
bool finished;     /* one of them came to the end of the input */

proctype Server() { byte i, s, r, c;
end: do
  :: atomic {
       select(i : 1 .. INCS); select(s : 0 .. 1);
       c = call[i].sent[s];
       if :: c -> skip :: else -> goto end fi;
       if
       :: fence[s] == i && ledger[s] == parent[c] ->
            for (r : first[c] .. end_[c]-1) { sink[s].seen[r]++; assert(sink[s].seen[r] == 1) }
            ledger[s] = c; call[i].answer[s] = DONE
       :: else -> call[i].answer[s] = ((fence[s] == i && ledger[s] == c) -> DONE : REFUSED)
       fi;
       call[i].sent[s] = 0; c = 0; r = 0 }
  od
}

/* Has a sink commit c, and goes out where it is refused. */
#define COMMIT(s, c) \
  atomic { call[me].sent[s] = c }; \
  call[me].answer[s] > 0; \
  if :: call[me].answer[s] == REFUSED -> goto out :: else -> call[me].answer[s] = 0 fi

/* A crash; what was sent stays in flight. */
#define CRASH if :: me < INCS -> goto out :: true fi

proctype Incarnation(byte me) { byte mine, asked, base, c, k;
  select(mine : 0 .. 1);                                 /* what the job declares now */
  atomic { if :: started < me -> started = me :: else -> goto out fi }
  atomic { if :: fence[0] < me -> fence[0] = me :: else -> goto out fi }
  atomic { if :: fence[1] < me -> fence[1] = me :: else -> goto out fi }
#ifdef ASKMINE              /* X: asks the decider that it has itself */
  asked = mine;
#else
  asked = decider[next-1];                               /* that of the start under which the newest one was entered */
#endif
  base = ledger[asked];
  CRASH;
#ifndef LAGGING             /* X: leaves the other sink where it is */
  if
  :: ledger[1-asked] == base
  :: else ->
       assert(fence[1-asked] != me || ledger[1-asked] == parent[base]);
       COMMIT(1-asked, base)
  fi;
#endif
  do
  :: end_[base] == N -> finished = true; break
  :: end_[base] < N ->
       CRASH;
       atomic {                                          /* prepare, checkpoint entry */
#ifndef NOSLOT              /* X: enters although somebody else has started */
         if :: started == me -> skip :: else -> goto out fi;
#endif
         select(k : end_[base]+1 .. N);
         c = next; next++;
         first[c] = end_[base]; end_[c] = k; parent[c] = base; decider[c] = mine; k = 0 }
       CRASH;
       COMMIT(mine, c);
       CRASH;
       COMMIT(1-mine, c);
       base = c
  od;
out: ended++
}

init { byte r;
  atomic { for (r : 1 .. INCS) { run Incarnation(r) }; run Server() }
  (ended == INCS);
  assert(finished);                                      /* the last incarnation always gets to the end, */
  for (r : 0 .. N-1) { assert(sink[0].seen[r] == 1 && sink[1].seen[r] == 1) }  /* and each effect is there once, at both */
}
