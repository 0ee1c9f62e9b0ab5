#include "items.h"

namespace headroom::cost::detail {
namespace {

constexpr PaperItem kMgkItems[] = {
    {"Theorem 1", "mixtures of Gaussians approximate densities", "", "A proof (appendix C)."},
    {"Eq. 7-13", "own and shifted keys, hard and soft E-step, linear keys", "",
     "`model.attention.score = \"gaussian_mixture\"` and `\"linear\"`, described in `docs/layers.md`; `headroom golden "
     "tests/tools/golden/cases` runs them against cases computed elsewhere"},
    {"Table 1", "Long Range Arena", "mgk/lra_*_softmax_h* mgk/lra_*_mgk_h? mgk/lra_*_smgk_h?",
     "`headroom compare mgk/lra_listops_softmax_h8 mgk/lra_listops_mgk_h4 mgk/lra_listops_smgk_h4 --out runs/lra "
     "--seeds 5`; text and retrieval read files: `docs/tasks.md`; text in small: `docs/results.md`"},
    {"Table 2", "Long Range Arena, linear attention", "mgk/lra_*_linear_h* mgk/lra_*_mlk_h? mgk/lra_*_smlk_h?",
     "`headroom compare mgk/lra_listops_linear_h8 mgk/lra_listops_mlk_h4 mgk/lra_listops_smlk_h4 --out runs/linear "
     "--seeds 5`"},
    {"Figure 1", "loss and accuracy while training, retrieval",
     "mgk/lra_retrieval_softmax_h2 mgk/lra_retrieval_linear_h2 mgk/lra_retrieval_mgk_h? mgk/lra_retrieval_mlk_h?",
     "The page of `headroom compare mgk/lra_retrieval_softmax_h2 mgk/lra_retrieval_mgk_h1 mgk/lra_retrieval_mgk_h2 "
     "--out runs/retrieval` draws them; `headroom report runs/retrieval` draws it again"},
    {"Table 3", "words of WikiText-103", "mgk/wt103_*",
     "`headroom compare mgk/wt103_small_softmax_h8 mgk/wt103_small_mgk_h4 --out runs/words`"},
    {"Section A.1.2", "perplexity of windows that move a word at a time", "mgk/wt103_*",
     "`headroom evaluate RUN --stride 1 --data wiki.test.tokens`"},
    {"Figure 2", "attention matrices and their ranks, retrieval",
     "mgk/lra_retrieval_softmax_h4 mgk/lra_retrieval_mgk_h4 mgk/lra_retrieval_mgk_h2", kAnalyseMapsAndRank},
    {"Figure 3", "operations and parameters against heads",
     "mgk/lra_*_softmax_h* mgk/lra_*_mgk_h? mgk/lra_*_linear_h* mgk/lra_*_mlk_h?",
     "`headroom cost mgk/lra_retrieval_softmax_h8 mgk/lra_retrieval_mgk_h4 --vary model.attention.n_heads=1,2,4,8 "
     "--plot heads.svg`"},
    {"Table 4", "hard-E, soft-E and learned priors", "mgk/lra_*_e_h1 mgk/lra_*_mgk_h1 mgk/lra_*_smgk_h1",
     "`headroom compare mgk/lra_listops_mgk_h1 mgk/lra_listops_mgk_hard_e_h1 mgk/lra_listops_mgk_soft_e_h1 --out "
     "runs/table4 --seeds 5`; in small: `headroom compare zoo/dense zoo/mgk small/mgk_hard_e small/mgk_soft_e --out "
     "runs/e_step`"},
    {"Section 3.3", "IWSLT14, German to English: settings", "mgk/iwslt14_deen_*",
     "`headroom train mgk/iwslt14_deen_mgk_h2 --set 'data.train=[\"iwslt14.tsv\"]' --out runs/iwslt`: a vocabulary for "
     "each side and pairs of like lengths, as fairseq prepares them, of text in lower case that Moses's tokenizer has "
     "cut"},
    {"Table 9", "IWSLT14, German to English: BLEU", "mgk/iwslt14_deen_*",
     "`headroom evaluate RUN --beam 5 --length-penalty 1.0 --data test.tsv`; in small: `docs/results.md`"},
    {"Figure 4", "perplexity while training, WikiText-103", "mgk/wt103_small_*",
     "The page of `headroom compare mgk/wt103_small_softmax_h8 mgk/wt103_small_mgk_h8 mgk/wt103_small_mgk_h4 --out "
     "runs/words` draws it"},
    {"Figure 5", "attention matrices, WikiText-103", "mgk/wt103_small_softmax_h8 mgk/wt103_small_mgk_h?", kAnalyseMaps},
    {"Figure 6", "their ranks", "mgk/wt103_small_softmax_h8 mgk/wt103_small_mgk_h?", kAnalyseRank},
    {"Figure 7", "operations and parameters of the ways to infer and learn",
     "mgk/lra_retrieval_*mgk_h? mgk/lra_retrieval_*_e_h1",
     "`headroom cost mgk/lra_retrieval_smgk_h1 mgk/lra_retrieval_mgk_h1 mgk/lra_retrieval_mgk_hard_e_h1 "
     "mgk/lra_retrieval_mgk_soft_e_h1 --vary model.attention.n_heads=1,2,4 --plot learning.svg`"},
    {"Figure 8", "matrices of linear attention", "mgk/lra_retrieval_linear_h4 mgk/lra_retrieval_mlk_h?", kAnalyseMaps},
    {"Table 5", "mixture, distance and shift apart",
     "mgk/table5_* mgk/lra_retrieval_softmax_h1 mgk/lra_retrieval_softmax_h2 mgk/lra_retrieval_mgk_h1 "
     "mgk/lra_retrieval_smgk_h1",
     "`headroom compare mgk/lra_retrieval_softmax_h1 mgk/table5_gaussian mgk/table5_softmax_mgk --out runs/table5`"},
    {"Table 6", "memory and time at test time, retrieval",
     "mgk/lra_retrieval_softmax_h8 mgk/lra_retrieval_linear_h8 mgk/lra_retrieval_*mgk_h4 mgk/lra_retrieval_*mlk_h4",
     "`headroom bench evaluate mgk/lra_retrieval_softmax_h8 mgk/lra_retrieval_mgk_h4 mgk/lra_retrieval_smgk_h4 "
     "--batch-size 32`, and so for linear attention. The paper's are those of an A100."},
    {"Figure 9", "loss and accuracy until convergence, retrieval",
     "mgk/lra_retrieval_softmax_h2 mgk/lra_retrieval_linear_h2 mgk/lra_retrieval_mgk_h? mgk/lra_retrieval_mlk_h?",
     "As Figure 1."},
    {"Figure 10", "perplexity until convergence, WikiText-103", "mgk/wt103_small_*", "As Figure 4."},
    {"Figure 11", "matrices that make keys",
     "mgk/lra_retrieval_softmax_h2 mgk/lra_retrieval_mgk_h1 mgk/lra_retrieval_smgk_h1", kAnalyseMixture},
    {"Figure 12", "keys", "mgk/lra_retrieval_softmax_h2 mgk/lra_retrieval_mgk_h1 mgk/lra_retrieval_smgk_h1",
     kAnalyseMixture},
    {"Table 7", "learned priors", "mgk/lra_retrieval_mgk_h1 mgk/lra_retrieval_smgk_h1", kAnalyseMixture},
    {"Figure 13", "operations of a training step against heads",
     "mgk/lra_retrieval_softmax_h* mgk/lra_retrieval_mgk_h? mgk/lra_retrieval_linear_h* mgk/lra_retrieval_mlk_h?",
     "`headroom cost mgk/lra_retrieval_softmax_h8 mgk/lra_retrieval_mgk_h4 --vary model.attention.n_heads=1,2,4,8 "
     "--plot step.svg`, which draws a training step as well"},
    {"Figure 14", "the same of the ways to infer and learn", "mgk/lra_retrieval_*mgk_h? mgk/lra_retrieval_*_e_h1",
     "As Figure 7."},
    {"Table 8", "six heads against twelve, retrieval",
     "mgk/lra_retrieval_softmax_h12 mgk/lra_retrieval_linear_h12 mgk/lra_retrieval_*_h6",
     "`headroom compare mgk/lra_retrieval_softmax_h12 mgk/lra_retrieval_mgk_h6 mgk/lra_retrieval_smgk_h6 --out "
     "runs/twelve`"},
    {"Section A.11", "beside multi-query attention", "",
     "Words; the two combine: `headroom train mgk/lra_listops_mgk_h4 --set model.attention.n_kv_heads=1 --out "
     "runs/shared`"},
    {"Appendix B", "operations and parameters, derived", "", "`headroom cost --paper mgk`"},
};

}  // namespace

std::span<const PaperItem> mgk_items() {
  return kMgkItems;
}

}  // namespace headroom::cost::detail
