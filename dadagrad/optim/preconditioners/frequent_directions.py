"""Frequent directions: the sum of g g' of a long stream, in the memory of a few rows.

The rows g_1, g_2, ... of a stream have the outer products G = sum g g'. A sketch S of rank tau
keeps fewer than tau directions for good, and what it removed is bounded by one number Delta:

    0 <= G - S'S <= Delta I,    Delta <= |A - A_k|_F^2 / (tau - k)  for every k < tau,

where A has the rows g and A_k is its best approximation of rank k (Liberty 2013; Ghashami et al.
2016; sec. 2 of Wan, Wei and Zhang 2018). So a stream of rank below tau is kept whole, Delta = 0.

A shrink subtracts the tau-th squared singular value from all of them, which leaves tau - 1 rows.
Without a buffer S has tau rows and is shrunk as soon as the last of them is in use, so after every
row: the form of the paper. With a buffer of b further rows it is shrunk only when a new row finds
all in use. The same bounds hold, for each shrink still takes at least tau sigma from |S|_F^2. With
b = tau a row costs O(tau d) rather than O(tau^2 d), amortised. Between two shrinks new rows stand
in S as they came, so S always contains the newest row.

With S goes its Gram matrix S S', which grows by one product S g a row. It is all that a shrink (and
a preconditioner) decomposes. A row with few non-zeros costs O(tau nnz) until the next shrink.

Sketches merge: adding the rows of one to another makes a sketch of both streams, whose Delta is the
sum of both and of what the adding removed (Ghashami et al. 2016).

A square root of an eigenvalue of S S' is wrong by up to 1e-8 of the largest one. Singular values
smaller than that are not told from 0; the sketch keeps their directions wherever there is room.

The sketch is a dict of arrays (what a checkpoint stores); n_rows is tau + b. All functions here
change it in place:

==============  ========================  ======================================================
``directions``  (n_features, n_rows)      S', one column a row of the sketch: what belongs to a
                                          feature lies together
``gram``        (n_rows, n_rows)          S S'
``products``    (n_rows,)                 S u, for a vector u of the caller's; see `add`
``filled``      (1,) int64                rows in use
``removed``     (1,)                      Delta, the sum of all that was subtracted
==============  ========================  ======================================================
"""

from __future__ import annotations

import numpy as np

from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes, all_rows, quotient


def shapes(n_features: int, n_rows: int) -> Shapes:
    """The shapes of the arrays of a sketch; each of their numbers has 8 bytes."""
    return {
        "directions": (n_features, n_rows),
        "gram": (n_rows, n_rows),
        "products": (n_rows,),
        "filled": (1,),
        "removed": (1,),
    }


def add(
    sketch: Arrays, rank: int, row: Array, ids: Ids | None = None, total: Array | None = None
) -> None:
    """Add one row to a sketch of `rank`, in place; shrink it when all its rows are in use.

    With strictly increasing `ids` the row has only these entries, and the others are 0. A row of
    zeros changes nothing. `total` has the same entries of a vector u that grew by this very row,
    after it did; given with every row, it keeps S u in ``products`` at all times.
    """
    n_features = len(sketch["directions"])
    row, ids, total = _compact(row, ids, total, n_features)
    if not len(row):
        return
    n_rows = sketch["directions"].shape[1]
    if sketch["filled"][0] == n_rows:
        shrink(sketch, rank)
    directions, gram, products = sketch["directions"], sketch["gram"], sketch["products"]
    new = int(sketch["filled"][0])
    rows = slice(None) if ids is None else ids
    crossed = row @ directions[rows, :new]
    gram[new, :new] = crossed
    gram[:new, new] = crossed
    gram[new, new] = row @ row
    products[:new] += crossed
    products[new] = np.nan if total is None else row @ total
    directions[rows, new] = row
    sketch["filled"][0] = new + 1
    if n_rows == rank:
        shrink(sketch, rank)


def _compact(
    row: Array, ids: Ids | None, total: Array | None, n_features: int
) -> tuple[Array, Ids | None, Array | None]:
    """The non-zeros with their ids, or the whole row without ids if there are many of them.

    Which of the two depends on the non-zeros alone, so a row gives the same bits whether it was
    given with ids or without.
    """
    # BLAS may sum a vector with gaps in another order.
    row = np.ascontiguousarray(row)
    total = None if total is None else np.ascontiguousarray(total)
    if 2 * np.count_nonzero(row) < n_features:
        nonzero = np.flatnonzero(row)
        features = nonzero if ids is None else ids[nonzero]
        return row[nonzero], features, None if total is None else total[nonzero]
    if ids is None or len(ids) == n_features:
        return row, None, total
    if total is not None:
        total = all_rows(total, ids, n_features)
    return all_rows(row, ids, n_features), None, total


def decompose(sketch: Arrays) -> tuple[Array, Array]:
    """Eigenvalues (increasing) and eigenvectors of S S', the rows in use alone.

    Eigenvalues that rounding does not tell from 0 are 0.
    """
    filled = int(sketch["filled"][0])
    values, vectors = np.linalg.eigh(sketch["gram"][:filled, :filled])
    if filled:
        values[values <= filled * np.finfo(np.float64).eps * values[-1]] = 0.0
    return values, vectors


def shrink(sketch: Arrays, rank: int) -> None:
    """Turn the rows into their principal directions and subtract until less than `rank` are left.

    Does nothing to a sketch with less than `rank` rows in use.
    """
    directions = sketch["directions"]
    filled = int(sketch["filled"][0])
    if filled < rank:
        return
    values, vectors = decompose(sketch)
    subtracted = values[filled - rank]
    leading = slice(filled - rank + 1, None)
    values, vectors = values[leading][::-1], vectors[:, leading][:, ::-1]
    reduced = np.maximum(values - subtracted, 0.0)
    turn = vectors * np.sqrt(quotient(reduced, values))
    directions[:, : rank - 1] = directions[:, :filled] @ turn
    directions[:, rank - 1 :] = 0.0
    orthogonal = directions[:, : rank - 1]
    sketch["gram"][:] = 0.0
    sketch["gram"][: rank - 1, : rank - 1] = orthogonal.T @ orthogonal
    sketch["products"][: rank - 1] = sketch["products"][:filled] @ turn
    sketch["products"][rank - 1 :] = 0.0
    sketch["filled"][0] = rank - 1
    sketch["removed"][0] += subtracted
