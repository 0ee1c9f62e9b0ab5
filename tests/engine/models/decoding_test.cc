// Tests that batched decoding is batch-invariant while rows join and leave the batch.
#include "headroom/models/decoding.h"

#include <numeric>

#include "engine/nn/combinations.h"
#include "engine/ops/gradients.h"
#include "headroom/models/language_model.h"
#include "small_models.h"

namespace headroom::models::decoding_test {

using testing::relative_error;

using Tokens = std::vector<std::int64_t>;

Tokens random_tokens(std::int64_t n, std::int64_t vocabulary) {
  const at::Tensor drawn = at::randint(vocabulary, {n}, at::kLong);
  return {drawn.const_data_ptr<std::int64_t>(), drawn.const_data_ptr<std::int64_t>() + n};
}

// A sequence: its tokens, and the number of tokens that each call reads.
struct Sequence {
  Tokens tokens;
  std::vector<std::int64_t> pieces;
  std::int64_t joins = 0;  // index of the call at which the sequence joins the batch
};

// Decodes `sequences` together and returns the logits [V] after each piece. The order of rows changes with every call.
std::vector<std::vector<at::Tensor>> decode_all(const LanguageModel& model, const std::vector<Sequence>& sequences,
                                                const nn::Context& context) {
  std::vector<DecodeState> states(sequences.size(), model.start_decoding());
  std::vector<std::vector<at::Tensor>> logits(sequences.size());
  std::vector<std::int64_t> read(sequences.size(), 0);
  for (std::int64_t call = 0;; ++call) {
    std::vector<DecodeRow> rows;
    std::vector<std::size_t> who;
    bool left = false;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::size_t which = (i + static_cast<std::size_t>(call)) % sequences.size();
      const Sequence& s = sequences[which];
      const std::size_t piece = logits[which].size();
      left = left || piece < s.pieces.size();
      if (call < s.joins || piece == s.pieces.size()) {
        continue;
      }
      const std::int64_t n = s.pieces[piece];
      rows.push_back({&states[which],
                      std::span(s.tokens).subspan(static_cast<std::size_t>(read[which]), static_cast<std::size_t>(n))});
      who.push_back(which);
      read[which] += n;
    }
    if (!left) {
      return logits;
    }
    if (rows.empty()) {
      continue;
    }
    const at::Tensor all = model.decode(rows, context);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      logits[who[row]].push_back(all[static_cast<std::int64_t>(row)].clone());
    }
  }
}

// Returns sequences that differ in length, start and end. Some calls read several tokens, and chunks fill up.
std::vector<Sequence> company(std::int64_t count, std::int64_t vocabulary) {
  std::vector<Sequence> all;
  for (std::int64_t i = 0; i < count; ++i) {
    Sequence s;
    s.joins = i % 3;
    s.pieces = {1 + i * 5 % 11};
    for (std::int64_t step = 0; step < 14 - i; ++step) {
      s.pieces.push_back(step % 6 == i % 6 && i % 2 == 1 ? 3 : 1);
    }
    s.tokens = random_tokens(std::accumulate(s.pieces.begin(), s.pieces.end(), std::int64_t{0}), vocabulary);
    all.push_back(std::move(s));
  }
  return all;
}

// The widths exceed a vector register and are not multiples of it.
config::ModelOptions wider(config::ModelOptions o) {
  o.vocabulary_size = 301;
  o.d_model = 132;
  o.attention.d_head = 66;
  o.mlp.d_hidden = 275;
  return o;
}

TEST(Decoding, ASequenceEqualsItsResultAloneBitForBit) {
  for (auto [name, options] : testing::language_models()) {
    options = wider(options);
    const LanguageModel model(options, 3);
    for (const bool half : {false, true}) {
      nn::Context context;
      if (half) {
        context.compute_dtype = at::kBFloat16;
      }
      at::manual_seed(5);
      const std::vector<Sequence> all = company(8, options.vocabulary_size);
      std::vector<std::vector<at::Tensor>> alone;
      for (const Sequence& s : all) {
        alone.push_back(decode_all(model, {s}, context)[0]);
      }
      for (const std::size_t others : {1U, 2U, 7U}) {
        const auto together =
            decode_all(model, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(others) + 1}, context);
        for (std::size_t i = 0; i <= others; ++i) {
          ASSERT_EQ(together[i].size(), alone[i].size());
          for (std::size_t piece = 0; piece < alone[i].size(); ++piece) {
            ASSERT_TRUE(together[i][piece].equal(alone[i][piece]))
                << name << (half ? ", bfloat16" : "") << ": sequence " << i << " of " << others + 1 << ", piece "
                << piece << ", off by " << (together[i][piece] - alone[i][piece]).abs().max().item<double>();
          }
        }
      }
    }
  }
}

// In a split-invariant context, rows of equal length are read together and the others alone.
TEST(Decoding, TextsReadTogetherEqualTheirResultAloneBitForBit) {
  for (auto [name, options] : testing::language_models()) {
    options = wider(options);
    const LanguageModel model(options, 3);
    for (const bool half : {false, true}) {
      nn::Context context{.split_invariant = true};
      if (half) {
        context.compute_dtype = at::kBFloat16;
      }
      constexpr std::size_t kRows = 5;
      std::vector<Tokens> texts;
      std::vector<DecodeState> together(kRows, model.start_decoding()), alone = together;
      std::vector<std::size_t> read;
      for (std::size_t i = 0; i < kRows; ++i) {
        texts.push_back(random_tokens(40, options.vocabulary_size));
        read.push_back(i % 2);
        if (i % 2 == 1) {  // so positions differ
          model.read(DecodeRow{&together[i], std::span(texts[i]).first(1)}, context);
          model.read(DecodeRow{&alone[i], std::span(texts[i]).first(1)}, context);
        }
      }
      for (const std::size_t n : {7U, 7U, 1U, 11U}) {  // crosses the end of a chunk
        std::vector<DecodeRow> rows;
        for (std::size_t i = 0; i < kRows; ++i) {
          rows.push_back({&together[i], std::span(texts[i]).subspan(read[i], n)});
          read[i] += n;
        }
        std::vector<at::Tensor> expected;
        for (std::size_t i = 0; i < kRows; ++i) {
          const DecodeRow row{&alone[i], rows[i].tokens};
          expected.push_back(model.decode({&row, 1}, context));
        }
        EXPECT_TRUE(model.decode(rows, context).equal(at::cat(expected))) << name << ", " << n << " tokens";
      }
    }
  }
}

// rewind() either restores the state before the last piece or changes nothing. decode_each() and read() must equal
// decode().
TEST(Decoding, TruncationUndoesReading) {
  for (const auto& [name, options] : testing::language_models()) {
    const LanguageModel model(options, 3);
    const Tokens tokens = random_tokens(30, options.vocabulary_size);
    const auto piece = [&](std::size_t begin, std::size_t n) { return std::span(tokens).subspan(begin, n); };
    std::size_t went_back = 0;
    DecodeState longest = model.start_decoding(), previous = model.start_decoding();
    for (std::size_t read = 3; read <= 27; read += 3) {
      if (read > 3) {
        model.decode_each({&previous, piece(read - 6, 3)}, {});
      }
      model.read({&longest, piece(read - 3, 3)}, {});
      DecodeState state = longest, shorter = previous;
      const DecodeState before = state;
      const bool back = state.rewind(3);
      DecodeState& same = back ? shorter : state;
      DecodeState got = back ? state : before;
      went_back += back ? 1 : 0;
      for (std::size_t at = read - 3; at + 3 <= 30; at += 3) {
        const at::Tensor each = model.decode_each({&same, piece(at, 3)}, {});
        const DecodeRow row{&got, piece(at, 3)};
        EXPECT_TRUE(each[2].equal(model.decode({&row, 1}, {})[0])) << name << ", back from " << read << " at " << at;
      }
    }
    const config::AttentionOptions first = options.of_layer(0).attention;
    EXPECT_EQ(went_back > 0, !first.score->has_state() || options.memory_length > 0) << name;
  }
}

// Copies of a state continue independently.
TEST(Decoding, CopiesAreIndependent) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : testing::language_models()) {
    at::manual_seed(6);
    const LanguageModel model(options, 3, at::kDouble);
    at::Tensor written = at::randint(options.vocabulary_size, {2, 3}, at::kLong);
    std::vector<DecodeState> states(2, model.start_decoding());
    testing::decode(model, written, states);
    const std::vector<Tokens> orders = {{0, 0, 1}, {2, 1, 0, 0}, {3, 3, 1}, {0, 1, 2},
                                        {2, 0},    {1, 1},       {0, 1},    {1, 0, 0}};
    for (int round = 0; round < 2; ++round) {
      for (const Tokens& rows : orders) {
        if (static_cast<std::size_t>(*std::max_element(rows.begin(), rows.end())) >= states.size()) {
          continue;
        }
        states = gather_states(states, rows);
        const at::Tensor next = at::randint(options.vocabulary_size, {std::ssize(rows), 1}, at::kLong);
        written = at::cat({written.index_select(0, at::tensor(rows, at::kLong)), next}, 1);
        const at::Tensor step = testing::decode(model, next, states);
        std::vector<DecodeState> afresh(rows.size(), model.start_decoding());
        const at::Tensor expected = testing::decode(model, written, afresh);
        ASSERT_LE(relative_error(step, expected), 1e-11) << name << " after " << written.size(1);
      }
    }
  }
}

TEST(Decoding, BadRowsAreRefused) {
  const LanguageModel model(tiny::model(), 3);
  DecodeState state = model.start_decoding();
  const Tokens one = {1}, none;
  const std::vector<DecodeRow> twice = {{&state, one}, {&state, one}}, empty = {{&state, none}};
  EXPECT_THROW(model.decode(twice, {}), Error);
  EXPECT_THROW(model.decode(empty, {}), Error);
  EXPECT_THROW(model.decode({}, {}), Error);
  std::vector<DecodeState> states(2, state);
  EXPECT_THROW(decode_rows(at::zeros({3, 1}, at::kLong), states), Error);
  EXPECT_EQ(state.position, 0);
}

TEST(LayersThatDiffer, DecodeLikeTheFullPass) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, m] : testing::two_layer_models()) {
    const LanguageModel model(m, 1, at::kDouble);
    at::manual_seed(1);
    const at::Tensor tokens = at::randint(m.vocabulary_size, {1, m.context_length}, at::kLong);
    std::vector<DecodeState> states = {model.start_decoding()};
    testing::decode(model, tokens.narrow(1, 0, 2), states);
    at::Tensor last;
    for (std::int64_t i = 2; i < m.context_length; ++i) {
      last = testing::decode(model, tokens.narrow(1, i, 1), states);
    }
    Memory memory;
    EXPECT_LE(testing::relative_error(last[0], model.logits(tokens, memory, {})[0][-1]), 1e-10) << name;
  }
}

}  // namespace headroom::models::decoding_test
