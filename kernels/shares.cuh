// Who works on what, where the steps of all tiles are dealt out evenly over the CTAs, in their order: CTA c has the steps from
// begin(c) on. A tile that lies in the shares of several CTAs is merged by the one that finishes last, in the order of the CTAs,
// so that every run gives the same bits.
struct Shares {
    int steps, each, longer;  // a share has `each` steps, the first `longer` of them one more

    __device__ __forceinline__ Shares(int tiles, int steps_of_tile) {
        steps = steps_of_tile;
        each = tiles * steps / (int)gridDim.x, longer = tiles * steps % (int)gridDim.x;
    }
    __device__ __forceinline__ int begin(int cta) const { return each * cta + min(cta, longer); }
    // Who has this step.
    __device__ __forceinline__ int owner(int step) const {
        const int front = (each + 1) * longer;
        return step < front ? step / (each + 1) : longer + (step - front) / each;
    }
};

// What one CTA does of one tile: steps `first` to `last` of it. It leaves what it has in a slot, unless it does them all.
struct Segment {
    int tile, first, last;
    bool whole;

    __device__ __forceinline__ Segment(const Shares& shares, int at, int end) {
        tile = at / shares.steps, first = at - tile * shares.steps;
        last = min(shares.steps, first + end - at);
        whole = first == 0 && last == shares.steps;
    }
    // A CTA has at most one tile whose front lies with others, and one whose front it has itself, but not the rest.
    __device__ __forceinline__ int slot() const { return blockIdx.x * 2 + (first == 0); }
};

// The CTAs that have worked on a tile, from `first` on: only the first of them can have its front.
struct Parts {
    int first, count;

    __device__ __forceinline__ Parts(const Shares& shares, int tile) {
        first = shares.owner(tile * shares.steps);
        count = shares.owner(tile * shares.steps + shares.steps - 1) - first + 1;
    }
    __device__ __forceinline__ int slot(int which) const { return (first + which) * 2 + (which == 0); }
};
